"""The contrastive loss, the guarded step, the loop and resume."""
