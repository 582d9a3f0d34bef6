"""The local place: each host of a slice is a process group of this machine."""
