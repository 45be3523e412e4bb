"""The process group: rank order, gather with gradients, agreement, timeouts."""
