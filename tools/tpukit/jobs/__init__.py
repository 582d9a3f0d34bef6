"""Jobs: the first use of the kernel. `decide` is pure; `driver` asks places and acts on them."""
