from tpukit.cli import main

main()
