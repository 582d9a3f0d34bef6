"""A TPU cloud in a box: everything that Google rents, imitated on this machine, for real tools to be tried against."""
