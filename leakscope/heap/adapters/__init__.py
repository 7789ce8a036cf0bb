"""What ``tp_traverse`` can't see: one module per kind of payload.

The native engine knows the same facts by heart; these modules hand it torch's own C accessors and
serve the reference.
"""
