"""The processes that keep an emulated fabric alive. Standard library only, except `plumbing` (pyroute2).

    guard (main.py)          in the caller's namespaces; makes the user namespace when needed, waits for the switch
      switch (switch.py)     PID 1 of the fabric's PID namespace; its network namespace has the bridges
        node (node.py)       one per node: PID 1 of the node's own namespaces
          keeper (program.py)  one per running program: starts it, counts its CPU time, ends all it started
            the program

The switch ends when its lifeline to the owner closes, and the kernel then removes everything below it.
"""
