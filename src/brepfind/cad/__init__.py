"""From a STEP file to plain arrays: read, check, sample; each file kept from the next."""
