"""Reads logs of the format ol.result/1 and shows them; see ../README.md."""
