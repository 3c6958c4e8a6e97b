"""What is kept on disk from one start to the next, so that it need not be worked out again.

Nothing here is needed to be right: whatever is missing, damaged, or not to be trusted is only as if it had never been.
"""
