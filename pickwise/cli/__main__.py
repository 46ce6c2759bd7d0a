from pickwise.cli import main

main()
