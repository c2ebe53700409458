"""Specs over products of two matrices, trained through without the products in memory."""
