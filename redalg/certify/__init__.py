"""From forms and refusals to certificates: documents that `redalg.proofs` checks."""
