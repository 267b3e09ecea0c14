"""What runs a compiled model: arrays, devices, modules, executors. Imports nothing of the compiler."""
