"""Trace replay: public traces against simulated workers, one placement policy beside another.

owns            traces as block chains, the simulated engine, the peers' published rules, the figures and the plot
does not own    our own placement: `policies.Saltway` drives the real Fleet, PrefixIndex and Placement
front door      python -m bench.replay TRACE --workers 8 --blocks 10000 [--policy NAME] [--json]

| file        | noun                                                                       |
|-------------|----------------------------------------------------------------------------|
| trace       | Trace, Request: when, how long, which blocks; the infinite-cache bound     |
| engine      | Engine: one simulated worker, its tiers, its queue                         |
| policies    | Policy and the rules that are compared                                     |
| simulation  | Simulation: events in order of time                                        |
| outcome     | Outcome: hit rate, imbalance, TTFT, decision time                          |
| plot        | hit rate against imbalance, as SVG                                         |

Everything but decision time is deterministic.
"""
