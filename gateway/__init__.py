"""The gateway: agent traffic in over HTTP dialects, exact token ids out to the worker that holds their prefix.

owns            dialects, authentication of a request, normalization, rendering, tool formats, dispatch, admin pages
does not own    cache identity and placement (cacheplane), tenants and keys (tenants), tensors (kernels, worker)
front door      the ASGI application, and the command line
"""
