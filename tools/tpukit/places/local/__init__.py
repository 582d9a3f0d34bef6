"""The local place: each host of a slice is a process group on this machine."""
