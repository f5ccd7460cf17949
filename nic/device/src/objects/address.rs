//! Addresses of datagrams.

use urxe_proto::AddressVector;

use crate::nic::Nic;
use crate::process::error::Error;

impl Nic {
    /// Whether datagrams can be sent to an address (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`Error::Invalid`] says why not.
    pub fn check_address(&self, address: &AddressVector) -> Result<(), Error> {
        let index = usize::from(address.source_gid_index);
        let gids = self.gids();
        let source = gids.get(index).filter(|entry| entry.is_used());
        let source = source.ok_or_else(|| {
            let count = gids.len();
            Error::Invalid(format!(
                "GID index {index}; this device has {count}, from 0"
            ))
        })?;
        let (from, to) = (source.gid.to_ip(), address.dest_gid.to_ip());
        if from.is_ipv4() == to.is_ipv4() && !address.dest_gid.is_zero() {
            Ok(())
        } else {
            Err(Error::Invalid(format!(
                "{to} cannot be reached from {from}"
            )))
        }
    }
}
