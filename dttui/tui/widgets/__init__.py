"""Parts of screens. They show what they are given and say what a person did; they know nothing that acts."""
