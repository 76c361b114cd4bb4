//! Coherence by seed against a simulated source.
