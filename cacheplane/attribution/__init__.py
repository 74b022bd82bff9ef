"""Miss attribution: why each prompt token that was not reused was not.

owns            the reasons and how they add up, sketches of recent prompts, what became of blocks that left
does not own    HTTP, the ledger, prompt text (it is digested and dropped), token ids, placement
front door      Attribution (sketch, outlook, attribute, finished), Departures, Origin, Segment

| file        | noun                                                                                    |
|-------------|-----------------------------------------------------------------------------------------|
| reasons     | Reason, Part, Kind, Divergence: what is said; the table of reasons and their precedence |
| forms       | the forms of a text in which it is compared                                             |
| marks       | Segment, Mark: keyed digests of a segment in every form                                 |
| contents    | Contents: keys of blocks by their content, the same for all tenants                     |
| sketch      | Origin, Sketch: one prompt as it is remembered                                          |
| memory      | Memory: each tenant's recent sketches, bounded                                          |
| departures  | Departures, Cause: which blocks left, and how                                           |
| comparison  | compare: where a prompt left an earlier one                                             |
| strangers   | Strangers: what other tenants sent, for an aggregate                                    |
| attribution | Attribution, Outlook, Misses: all of it together, for one request                       |
"""

from cacheplane.attribution.attribution import Attribution, Misses, Outlook
from cacheplane.attribution.departures import Cause, Departures
from cacheplane.attribution.marks import Segment
from cacheplane.attribution.reasons import Divergence, Kind, Part, Reason
from cacheplane.attribution.sketch import Origin, Sketch

__all__ = [
    "Attribution",
    "Cause",
    "Departures",
    "Divergence",
    "Kind",
    "Misses",
    "Origin",
    "Outlook",
    "Part",
    "Reason",
    "Segment",
    "Sketch",
]
