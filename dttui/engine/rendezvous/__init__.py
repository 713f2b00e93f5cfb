"""How ranks come together: who arrived, which process groups they formed, elastic rounds."""
