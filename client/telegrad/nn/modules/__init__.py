"""The modules, in files with the names that torch.nn.modules has; all derive from :class:`.module.Module`."""
