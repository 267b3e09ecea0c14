"""The text form of Relay, TVM 0.8's ``#[version = "0.0.5"]``.

printer.py      expressions and modules to text         types.py      types, attribute values and literals to text
syntax.py       the grammar; lexer.py gives it tokens   parser.py     text to modules; builder.py makes the nodes
"""
