"""The modules, in files named as in torch.nn.modules; all derive from :class:`.module.Module`."""
