"""The search page, and what the ``search`` and ``index`` commands print."""
