"""Lists accounts, shares and sessions of a server by impacket's remote procedure calls, for serve_names.rs.

usage: names.py HOST PORT    prints one JSON object

Environment: SMB_USER, SMB_PASSWORD; SMB_OTHER, a second user with the same password who is logged in too.
"""
import json
import os
import sys

from impacket.dcerpc.v5 import lsad, lsat, samr, srvs, transport, wkst
from impacket.dcerpc.v5.dtypes import MAXIMUM_ALLOWED, NULL
from impacket.smbconnection import SMBConnection

host, port = sys.argv[1], int(sys.argv[2])
user, password = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"]


def login(name):
    smb = SMBConnection(host, host, sess_port=port)
    smb.login(name, password)
    return smb


def pipe(name, interface):
    dce = transport.SMBTransport(host, port, "\\" + name, user, password).get_dce_rpc()
    dce.connect()
    dce.bind(interface)
    return dce


def fault(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return str(error).strip()
    return "no fault"


def sessions(dce, level):
    info = srvs.hNetrSessionEnum(dce, "\x00", NULL, level)["InfoStruct"]["SessionInfo"]["Level%d" % level]
    return info["Buffer"]


told = {}

srvsvc = pipe("srvsvc", srvs.MSRPC_UUID_SRVS)
second, other = login(user), login(os.environ["SMB_OTHER"])
tree = second.connectTree("data")
opened = [second.openFile(tree, "file", desiredAccess=1) for _ in range(3)]
told["sessions"] = {level: len(sessions(srvsvc, level)) for level in (0, 1, 2, 10, 502)}
told["opens"] = sorted(session["sesi502_num_opens"] for session in sessions(srvsvc, 502))
told["session_users"] = sorted({session["sesi10_username"].rstrip("\x00") for session in sessions(srvsvc, 10)})
told["session_clients"] = sorted({session["sesi10_cname"].rstrip("\x00") for session in sessions(srvsvc, 10)})
told["shares"] = [srvs.hNetrShareEnum(srvsvc, level)["TotalEntries"] for level in (0, 1, 2, 501, 502)]
told["share_levels"] = [srvs.hNetrShareGetInfo(srvsvc, "data\x00", level)["ErrorCode"] for level in (0, 1, 2, 501, 502, 1005)]
told["year"] = srvs.hNetrRemoteTOD(srvsvc)["BufferPtr"]["tod_year"]
told["unknown_call"] = fault(srvs.hNetrFileEnum, srvsvc, NULL, NULL, 3)

lsa = pipe("lsarpc", lsat.MSRPC_UUID_LSAT)
policy = lsad.hLsarOpenPolicy2(lsa, MAXIMUM_ALLOWED)["PolicyHandle"]
told["policy"] = [lsad.hLsarQueryInformationPolicy2(lsa, policy, level)["ErrorCode"] for level in (3, 5, 12)]
sids = ["S-1-1-0", "S-1-22-1-0", "S-1-5-32-544"]
for lookup in (lsat.hLsarLookupSids, lsat.hLsarLookupSids2):
    told[lookup.__name__] = [name["Name"] for name in lookup(lsa, policy, sids)["TranslatedNames"]["Names"]]
names = (user, "root", "Everyone", "Administrators")
for lookup in (lsat.hLsarLookupNames, lsat.hLsarLookupNames2, lsat.hLsarLookupNames3):
    told[lookup.__name__] = lookup(lsa, policy, names)["MappedCount"]
# Requests and replies of many fragments.
many = lsat.hLsarLookupSids(lsa, policy, sids * 400)["TranslatedNames"]["Names"]
told["many"] = sum(name["Name"] == "Administrators" for name in many)
told["own_name"] = lsat.hLsarGetUserName(lsa)["UserName"]
lsad.hLsarClose(lsa, policy)
told["closed_handle"] = fault(lsad.hLsarClose, lsa, policy)

sam = pipe("samr", samr.MSRPC_UUID_SAMR)
for connect in (samr.hSamrConnect, samr.hSamrConnect2, samr.hSamrConnect4, samr.hSamrConnect5):
    server = connect(sam)["ServerHandle"]
domains = [domain["Name"] for domain in samr.hSamrEnumerateDomainsInSamServer(sam, server)["Buffer"]["Buffer"]]
told["domains"] = domains
sid = samr.hSamrLookupDomainInSamServer(sam, server, domains[0])["DomainId"]
domain = samr.hSamrOpenDomain(sam, server, domainId=sid)["DomainHandle"]
users = samr.hSamrEnumerateUsersInDomain(sam, domain)["Buffer"]["Buffer"]
told["users"] = [account["Name"] for account in users]
rid = samr.hSamrLookupNamesInDomain(sam, domain, (user,))["RelativeIds"]["Element"][0]["Data"]
told["names"] = [name["Data"] for name in samr.hSamrLookupIdsInDomain(sam, domain, (rid, 513))["Names"]["Element"]]
account = samr.hSamrOpenUser(sam, domain, userId=rid)["UserHandle"]
told["user_levels"] = [samr.hSamrQueryInformationUser2(sam, account, level)["ErrorCode"] for level in (1, 6, 7, 8, 9, 16, 21)]
all_of_it = samr.hSamrQueryInformationUser2(sam, account, samr.USER_INFORMATION_CLASS.UserAllInformation)
told["user"] = all_of_it["Buffer"]["All"]["UserName"]
groups = samr.hSamrGetGroupsForUser(sam, account)["Groups"]["Groups"]
told["groups"] = [group["RelativeId"] for group in groups]
told["domain_levels"] = [samr.hSamrQueryInformationDomain2(sam, domain, level)["ErrorCode"] for level in (1, 2, 4, 5, 7)]
told["display"] = samr.hSamrQueryDisplayInformation(sam, domain)["TotalReturned"]

wkssvc = pipe("wkssvc", wkst.MSRPC_UUID_WKST)
told["workstation"] = [
    wkst.hNetrWkstaGetInfo(wkssvc, level)["WkstaInfo"]["WkstaInfo%d" % level]["wki%d_computername" % level].rstrip("\x00")
    for level in (100, 101, 102)
]

print(json.dumps(told))
