"""TVM 0.8's names of the executor that can be looked into."""
