"""The worker: runs one model, remembers the KV of every prefix it has computed, and streams tokens.

owns            reading models, the model, KV memory, scheduling, sampling, grammar, its HTTP surface, its events
does not own    tenants, API keys, chat templates, the meaning of a prompt: it sees ids, namespaces and opaque tags
front door      python -m worker; over HTTP: POST /generate, GET /model /load /kv/snapshot (worker/server.py)
"""
