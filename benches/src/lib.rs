//! Comparisons with what users do by hand.
