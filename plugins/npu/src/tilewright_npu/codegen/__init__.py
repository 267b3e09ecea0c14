"""From a partitioned function to a program of the chip.

layers.py      what the function computes, as layers over tensors of channels, height and width
memory.py      where tensors lie: in the SRAM from the layer that makes them to the last that reads them, or in the DDR
stream.py      commands, and the tokens that order them, from the memory that each reads and writes
products.py    convolutions and dense layers on the matrix unit: tiles, weights, epilogues
others.py      depthwise convolutions, pools, sums and activations on the vector unit
generate.py    all of it together
"""
