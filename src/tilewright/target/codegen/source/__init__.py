"""Common parts of C-like languages: functions as source text.

``scalarize.py``: vector statements as loops over lanes. ``names.py``: types, literals, identifiers. ``expr.py`` and
``statements.py``: expressions and statements. Dialects override methods there.
"""
