//! The library a user embeds.
