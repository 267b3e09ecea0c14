"""Models of other libraries beside eager torch: ``python -m tests.frontend_coverage``.

subject.py   a model to compare, and what became of it       torch_models.py         small structures of torch alone
torchvision_models.py, transformers_models.py                pt2e_models.py          networks that torchao quantizes
"""
