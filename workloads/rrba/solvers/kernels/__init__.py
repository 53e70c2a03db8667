"""The compiled kernels of BT, SP, LU and MG, and the model that they solve."""
