"""Certificates of derivatives and their proof: a derivative is rebuilt from the spec by a table of rules (`rules`)."""
