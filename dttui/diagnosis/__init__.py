"""Why a job ended as it did: evidence from its directory in, cause and advice out."""
