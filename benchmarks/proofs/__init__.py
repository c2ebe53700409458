"""The judges of certificates: damaged input, corrupted certificates, Z3 and Rocq over the catalog."""
