"""The worker: runs one model, remembers the KV of every prefix it has computed, and streams tokens.

owns            reading models, the model, KV memory, scheduling, sampling, grammar, its HTTP surface, its events
does not own    tenants, API keys, chat templates, the meaning of a prompt: it sees ids, namespaces and opaque tags
front door      python -m worker; over HTTP: POST /generate, GET /model /load /kv/snapshot (worker/server.py)
"""

import os

# Read when torch is loaded, so before anything else here. Threads that spin while they wait for the next product take
# the other core from whoever serves: one reply on two cores came at 60 tokens a second and comes at 70 to 100.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
