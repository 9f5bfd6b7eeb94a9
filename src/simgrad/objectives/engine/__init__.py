"""How a batch is worked, whatever its objective: this room knows no family by name.

`embeddings.py` chooses the way. A rule that is written elementwise goes through `passes.py`, both
directions from one product of embeddings, with tiles of PyTorch (`tiles.py`) or of Triton
(`fused.py`, printed by `printing.py`), alone or with the texts of other processes passing by
(`ring.py`). Any other rule sees whole rows, one direction at a time (`dense.py`).
"""
