"""The prefix index alone: look-ups, events, memory, growth, churn; beside the Rust radix tree of Dynamo if it is here.

owns            a synthetic fleet and what it says, the clock around the index, the peer's figures, the table
does not own    placement (bench.replay), sockets and streams (tests)
front door      python -m bench.index [--workers 16,64,256] [--blocks 1000000] [--churn EVENTS] [--json]
"""
