"""Scenario benchmarks: each module is one scenario, measured through the whole server.

owns            scenarios, recorded and made-up sessions, tables and JSON of figures
does not own    anything that the product needs at run time; figures are never asserted in tests
front door      python -m bench.sessions, bench.engine, bench.quality, bench.fairness, bench.memory, bench.soak,
                bench.gpu
"""
