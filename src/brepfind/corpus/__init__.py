"""Parts and their captions: the generated sample, the user's own folder, manifests and splits."""
