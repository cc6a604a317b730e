//! Small integer helpers, so that every cut of an integer is visible and named.

/// Bits `low .. low + width` of `value`.
pub(crate) const fn field(value: u32, low: u32, width: u32) -> u32 {
    (value >> low) & (u32::MAX >> (32 - width))
}

/// The low 8 bits.
pub(crate) const fn low8(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

/// The low 16 bits.
pub(crate) const fn low16(value: u64) -> u16 {
    let b = value.to_le_bytes();
    u16::from_le_bytes([b[0], b[1]])
}

/// The low 32 bits.
pub(crate) const fn low32(value: u64) -> u32 {
    let b = value.to_le_bytes();
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

/// The high 32 bits.
pub(crate) const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// Two halves made one.
pub(crate) const fn join(low: u32, high: u32) -> u64 {
    // Widening only: `From` is not const.
    (high as u64) << 32 | low as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        assert_eq!(field(0xffff_ffff, 27, 5), 31);
        assert_eq!(field(0x8000_0000, 31, 1), 1);
        assert_eq!(field(0xdead_beef, 0, 32), 0xdead_beef);
        assert_eq!(low8(0x1234), 0x34);
        assert_eq!(low16(0x1_2345), 0x2345);
        assert_eq!(low32(0x1_0000_0002), 2);
        assert_eq!(high32(0x1_0000_0002), 1);
        assert_eq!(join(2, 1), 0x1_0000_0002);
    }
}
