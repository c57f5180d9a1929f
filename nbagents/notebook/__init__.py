"""The magics of a notebook: how IPython reads them, what they do, what they remember."""
