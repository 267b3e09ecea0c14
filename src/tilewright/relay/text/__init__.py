"""The text form of Relay, TVM 0.8's ``#[version = "0.0.5"]``.

printer.py      expressions and modules to text         types.py      types, attribute values and literals to text
lexer.py        text to tokens                          syntax.py     the grammar: tokens to a tree
parser.py       text to modules                         builder.py    the tree to nodes
type_builder.py the tree to types                       literals.py   tokens to values
attributes.py   values of attributes, checked
"""
