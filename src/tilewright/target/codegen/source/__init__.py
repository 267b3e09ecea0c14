"""What C and languages like it share: functions as source text.

``scalarize.py``: vector statements as loops over lanes. ``names.py``: types, literals, identifiers. ``expr.py`` and
``statements.py``: expressions and statements. What differs between dialects is a method there.
"""
