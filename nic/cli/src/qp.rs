//! `urxe qp`: the queue pairs of the processes that use urxe devices, as `rdma resource show qp`
//! words them.
use anyhow::Result;
use serde::Serialize;
use urxe_device::{DeviceStat, ProcessStat, QpStat, STAT_SCHEMA};

use crate::processes;

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    schema: u32,
    qps: Vec<Row>,
}

/// A queue pair, with the names of `rdma -j resource show qp`; the addresses are ours.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    ifindex: u32,
    ifname: String,
    port: u8,
    lqpn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rqpn: Option<u32>,
    r#type: String,
    state: String,
    rq_psn: u32,
    sq_psn: u32,
    path_mig_state: &'static str,
    pdn: u32,
    pid: u32,
    comm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_address: Option<String>,
}

impl Row {
    fn new(process: &ProcessStat, device: &DeviceStat, qp: QpStat) -> Self {
        Self {
            ifindex: device.interface_index,
            ifname: device.device.clone(),
            port: 1,
            lqpn: qp.lqpn,
            rqpn: qp.rqpn,
            r#type: qp.r#type,
            state: qp.state,
            rq_psn: qp.rq_psn,
            sq_psn: qp.sq_psn,
            // No device of ours has alternate paths.
            path_mig_state: "MIGRATED",
            pdn: qp.pdn,
            pid: process.pid,
            comm: process.comm.clone(),
            local_address: qp.local_address,
            remote_address: qp.remote_address,
        }
    }

    fn line(&self) -> String {
        let mut line = format!("link {}/{} lqpn {}", self.ifname, self.port, self.lqpn);
        let mut add = |name: &str, value: &str| line.extend([" ", name, " ", value]);
        if let Some(rqpn) = self.rqpn {
            add("rqpn", &rqpn.to_string());
        }
        add("type", &self.r#type);
        add("state", &self.state);
        add("rq-psn", &self.rq_psn.to_string());
        add("sq-psn", &self.sq_psn.to_string());
        add("path-mig-state", self.path_mig_state);
        add("pdn", &self.pdn.to_string());
        add("pid", &self.pid.to_string());
        add("comm", &self.comm);
        if let Some(address) = &self.local_address {
            add("local", address);
        }
        if let Some(address) = &self.remote_address {
            add("remote", address);
        }
        line
    }
}

/// Prints a line per queue pair, or JSON.
pub(crate) fn print(json: bool) -> Result<()> {
    let qps = rows(processes::all()?);
    if json {
        let document = Document {
            schema: STAT_SCHEMA,
            qps,
        };
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        for row in &qps {
            println!("{}", row.line());
        }
    }
    Ok(())
}

fn rows(processes: Vec<ProcessStat>) -> Vec<Row> {
    let mut rows = Vec::new();
    for mut process in processes {
        for mut device in std::mem::take(&mut process.devices) {
            let qps = std::mem::take(&mut device.qps);
            rows.extend(qps.into_iter().map(|qp| Row::new(&process, &device, qp)));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_that_of_rdma() {
        let process = ProcessStat {
            pid: 12,
            comm: "prog".into(),
            uid: None,
            devices: vec![DeviceStat {
                device: "urxe_eth0".into(),
                qps: vec![
                    QpStat {
                        lqpn: 17,
                        rqpn: Some(18),
                        r#type: "RC".into(),
                        state: "RTS".into(),
                        rq_psn: 5,
                        sq_psn: 6,
                        pdn: 1,
                        local_address: Some("192.0.2.1".into()),
                        remote_address: Some("192.0.2.2".into()),
                        ..QpStat::default()
                    },
                    QpStat {
                        lqpn: 19,
                        r#type: "UD".into(),
                        state: "INIT".into(),
                        ..QpStat::default()
                    },
                ],
                ..DeviceStat::default()
            }],
            ..ProcessStat::default()
        };
        let lines: Vec<_> = rows(vec![process]).iter().map(Row::line).collect();
        assert_eq!(
            lines,
            [
                "link urxe_eth0/1 lqpn 17 rqpn 18 type RC state RTS rq-psn 5 sq-psn 6 path-mig-state MIGRATED \
                 pdn 1 pid 12 comm prog local 192.0.2.1 remote 192.0.2.2",
                "link urxe_eth0/1 lqpn 19 type UD state INIT rq-psn 0 sq-psn 0 path-mig-state MIGRATED pdn 0 \
                 pid 12 comm prog",
            ]
        );
    }
}
