"""Real ipykernels, driven through jupyter_client."""
