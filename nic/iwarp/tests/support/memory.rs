//! The simulator's memory, as a byte stream uses it.

use urxe_iwarp::{Place, StreamMemory};
use urxe_proto::{
    AccessError, AtomicOp, LocalAccess, Memory, Payload, PdId, RemoteAccess, RemoteRange, Sge, Via,
    WindowBind, gather,
};
use urxe_sim::VecMemory;

#[derive(Debug, Default)]
pub struct HostMemory(pub VecMemory);

impl HostMemory {
    /// What a socket does with bytes that are read to a place.
    pub fn fill(&mut self, place: &Place, bytes: &[u8]) {
        match place {
            Place::Local { pd, sge } => self.write_local(*pd, sge, 0, bytes).unwrap(),
            Place::Remote { via, range } => {
                let len = u32::try_from(bytes.len()).unwrap();
                let range = RemoteRange { len, ..*range };
                self.write_remote(*via, range, bytes).unwrap();
            }
        }
    }

    /// What a socket takes from a piece of output.
    pub fn take(
        &self,
        pd: PdId,
        piece: &Payload<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        match piece {
            Payload::Bytes(bytes) => out.extend_from_slice(bytes),
            Payload::Local { sges, offset, len } => {
                let mut bytes = vec![0; *len as usize];
                gather(self, pd, sges, *offset, &mut bytes)?;
                out.extend_from_slice(&bytes);
            }
            Payload::Remote { via, rkey, va, len } => {
                let range = RemoteRange {
                    rkey: *rkey,
                    va: *va,
                    len: *len,
                };
                out.extend_from_slice(self.0.read_remote(*via, range)?);
            }
            Payload::Empty => {}
            Payload::Words(_) => panic!("only ATOMIC WRITE and FLUSH have words"),
        }
        Ok(())
    }
}

impl StreamMemory for HostMemory {
    fn read_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        out.copy_from_slice(self.0.bytes_for(via, range, access)?);
        Ok(())
    }
}

impl Memory for HostMemory {
    fn check_local(&self, pd: PdId, sge: &Sge, access: LocalAccess) -> Result<(), AccessError> {
        self.0.check_local(pd, sge, access)
    }

    fn check_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        self.0.check_remote(via, range, access)
    }

    fn write_local(
        &mut self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        self.0.write_local(pd, sge, offset, bytes)
    }

    fn read_local(
        &self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        self.0.read_local(pd, sge, offset, out)
    }

    fn write_remote(
        &mut self,
        via: Via,
        range: RemoteRange,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        self.0.write_remote(via, range, bytes)
    }

    fn atomic(&mut self, via: Via, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.0.atomic(via, rkey, va, op)
    }

    fn bind_window(&mut self, via: Via, bind: &WindowBind) -> Result<(), AccessError> {
        self.0.bind_window(via, bind)
    }

    fn invalidate(&mut self, via: Via, rkey: u32) -> Result<(), AccessError> {
        self.0.invalidate(via, rkey)
    }
}
