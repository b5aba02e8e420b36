// SPDX-License-Identifier: MIT
pragma solidity 0.8.28;

// The contracts that a payment by batch-settlement meets, put at the real addresses by anvil_setCode: the settlement contract, its collectors
// of deposits by EIP-3009 and by Permit2 (TestPermit2.sol), and the function of Multicall3 by which the reference facilitator reads. Channel
// ids, domain, messages, events and entry points are the real ones, as the reference packages 2.27 call them; what this wallet does not meet
// is left out (vouchers of contracts, calls of the receiver without a signature). For throw-away chains only.

interface IToken {
    function balanceOf(address account) external view returns (uint256);
    function transfer(address to, uint256 value) external returns (bool);
    function receiveWithAuthorization(
        address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes calldata signature
    ) external;
    function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;
}

interface IPermit2 {
    struct TokenPermissions { address token; uint256 amount; }
    struct PermitTransferFrom { TokenPermissions permitted; uint256 nonce; uint256 deadline; }
    struct SignatureTransferDetails { address to; uint256 requestedAmount; }
    function permitWitnessTransferFrom(
        PermitTransferFrom memory permit, SignatureTransferDetails calldata details, address owner, bytes32 witness,
        string calldata witnessTypeString, bytes calldata signature
    ) external;
}

struct ChannelConfig {
    address payer;
    address payerAuthorizer;
    address receiver;
    address receiverAuthorizer;
    address token;
    uint40 withdrawDelay;
    bytes32 salt;
}

contract TestBatchSettlement {
    struct Amounts { uint128 balance; uint128 totalClaimed; }
    struct Pending { uint128 amount; uint40 initiatedAt; }
    struct Account { uint128 totalClaimed; uint128 totalSettled; }
    struct Voucher { ChannelConfig channel; uint128 maxClaimableAmount; }
    struct VoucherClaim { Voucher voucher; bytes signature; uint128 totalClaimed; }

    event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance);
    event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed);
    event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount);
    event WithdrawInitiated(bytes32 indexed channelId, uint128 amount, uint40 finalizeAfter);
    event WithdrawFinalized(bytes32 indexed channelId, address indexed sender, uint128 amount);
    event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount);

    error InvalidChannel();
    error InvalidSignature();
    error InvalidAmount();
    error ClaimExceedsCeiling();
    error ClaimExceedsBalance();
    error RefundNonceMismatch();
    error WithdrawalAlreadyPending();
    error WithdrawalNotPending();
    error WithdrawDelayOutOfRange();
    error WithdrawDelayNotElapsed();
    error DepositCollectionFailed();

    mapping(bytes32 => Amounts) public channels;
    mapping(bytes32 => Pending) public pendingWithdrawals;
    mapping(bytes32 => uint256) public refundNonce;
    mapping(address => mapping(address => Account)) public receivers;

    function getChannelId(ChannelConfig memory c) public view returns (bytes32) {
        return hashed(keccak256(abi.encode(keccak256(
            "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,"
            "uint40 withdrawDelay,bytes32 salt)"
        ), c)));
    }

    function deposit(ChannelConfig calldata c, uint128 amount, address collector, bytes calldata data) external {
        if (amount == 0) revert InvalidAmount();
        if (c.withdrawDelay < 15 minutes || c.withdrawDelay > 30 days) revert WithdrawDelayOutOfRange();
        bytes32 id = getChannelId(c);
        uint256 had = IToken(c.token).balanceOf(address(this));
        TestBatchCollector(collector).collect(c.payer, c.token, amount, id, data);
        if (IToken(c.token).balanceOf(address(this)) != had + amount) revert DepositCollectionFailed();
        channels[id].balance += amount;
        emit Deposited(id, msg.sender, amount, channels[id].balance);
    }

    function claimWithSignature(VoucherClaim[] calldata claims, bytes calldata signature) external {
        address authorizer = claims[0].voucher.channel.receiverAuthorizer;
        bytes32[] memory hashes = new bytes32[](claims.length);
        for (uint256 i; i < claims.length; i++) {
            if (claims[i].voucher.channel.receiverAuthorizer != authorizer) revert InvalidChannel();
            hashes[i] = keccak256(abi.encode(
                keccak256("ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)"),
                getChannelId(claims[i].voucher.channel), claims[i].voucher.maxClaimableAmount, claims[i].totalClaimed
            ));
        }
        bytes32 batch = keccak256(abi.encode(keccak256(
            "ClaimBatch(ClaimEntry[] claims)ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)"
        ), keccak256(abi.encodePacked(hashes))));
        if (signerOf(hashed(batch), signature) != authorizer) revert InvalidSignature();
        for (uint256 i; i < claims.length; i++) claim(claims[i]);
    }

    function claim(VoucherClaim calldata c) private {
        bytes32 id = getChannelId(c.voucher.channel);
        Amounts storage a = channels[id];
        if (c.totalClaimed <= a.totalClaimed) return;
        if (c.totalClaimed > c.voucher.maxClaimableAmount) revert ClaimExceedsCeiling();
        if (c.totalClaimed > a.balance) revert ClaimExceedsBalance();
        bytes32 voucher = keccak256(abi.encode(
            keccak256("Voucher(bytes32 channelId,uint128 maxClaimableAmount)"), id, c.voucher.maxClaimableAmount
        ));
        if (signerOf(hashed(voucher), c.signature) != c.voucher.channel.payerAuthorizer) revert InvalidSignature();
        uint128 more = c.totalClaimed - a.totalClaimed;
        a.totalClaimed = c.totalClaimed;
        receivers[c.voucher.channel.receiver][c.voucher.channel.token].totalClaimed += more;
        emit Claimed(id, msg.sender, more, c.totalClaimed);
    }

    function settle(address receiver, address token) external {
        Account storage a = receivers[receiver][token];
        uint128 amount = a.totalClaimed - a.totalSettled;
        a.totalSettled = a.totalClaimed;
        if (amount == 0) return;
        IToken(token).transfer(receiver, amount);
        emit Settled(receiver, token, msg.sender, amount);
    }

    function refundWithSignature(ChannelConfig calldata c, uint128 amount, uint256 nonce, bytes calldata signature) external {
        bytes32 id = getChannelId(c);
        if (nonce != refundNonce[id]++) revert RefundNonceMismatch();
        bytes32 refund = keccak256(abi.encode(
            keccak256("Refund(bytes32 channelId,uint256 nonce,uint128 amount)"), id, nonce, amount
        ));
        if (signerOf(hashed(refund), signature) != c.receiverAuthorizer) revert InvalidSignature();
        emit Refunded(id, msg.sender, payBack(c, id, amount));
    }

    function initiateWithdraw(ChannelConfig calldata c, uint128 amount) external {
        bytes32 id = ofPayer(c);
        if (amount == 0 || amount > channels[id].balance - channels[id].totalClaimed) revert InvalidAmount();
        if (pendingWithdrawals[id].initiatedAt != 0) revert WithdrawalAlreadyPending();
        pendingWithdrawals[id] = Pending(amount, uint40(block.timestamp));
        emit WithdrawInitiated(id, amount, uint40(block.timestamp) + c.withdrawDelay);
    }

    function finalizeWithdraw(ChannelConfig calldata c) external {
        bytes32 id = ofPayer(c);
        Pending memory p = pendingWithdrawals[id];
        if (p.initiatedAt == 0) revert WithdrawalNotPending();
        if (block.timestamp < uint256(p.initiatedAt) + c.withdrawDelay) revert WithdrawDelayNotElapsed();
        delete pendingWithdrawals[id];
        emit WithdrawFinalized(id, msg.sender, payBack(c, id, p.amount));
    }

    function ofPayer(ChannelConfig calldata c) private view returns (bytes32) {
        if (msg.sender != c.payer && msg.sender != c.payerAuthorizer) revert InvalidChannel();
        return getChannelId(c);
    }

    /// To the payer, whoever asked; at most what is not claimed.
    function payBack(ChannelConfig calldata c, bytes32 id, uint128 amount) private returns (uint128) {
        uint128 free = channels[id].balance - channels[id].totalClaimed;
        if (amount > free) amount = free;
        channels[id].balance -= amount;
        if (amount > 0) IToken(c.token).transfer(c.payer, amount);
        return amount;
    }

    function multicall(bytes[] calldata calls) external returns (bytes[] memory results) {
        results = new bytes[](calls.length);
        for (uint256 i; i < calls.length; i++) {
            bool ok;
            (ok, results[i]) = address(this).delegatecall(calls[i]);
            bytes memory reason = results[i];
            if (!ok) assembly { revert(add(reason, 32), mload(reason)) }
        }
    }

    function hashed(bytes32 message) private view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
            keccak256("x402 Batch Settlement"), keccak256("1"), block.chainid, address(this)
        ));
        return keccak256(abi.encodePacked("\x19\x01", domain, message));
    }

    function signerOf(bytes32 digest, bytes memory signature) private pure returns (address signer) {
        if (signature.length != 65) revert InvalidSignature();
        (bytes32 r, bytes32 s) = abi.decode(signature, (bytes32, bytes32));
        signer = ecrecover(digest, uint8(signature[64]), r, s);
        if (signer == address(0)) revert InvalidSignature();
    }
}

/// Brings a payer's ReceiveWithAuthorization to the settlement contract. Its nonce names the channel: the money can go into no other.
contract TestBatchCollector {
    address private constant SETTLEMENT = 0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003;

    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external {
        require(msg.sender == SETTLEMENT, "not the settlement contract");
        (uint256 validAfter, uint256 validBefore, uint256 salt, bytes memory signature) = abi.decode(data, (uint256, uint256, uint256, bytes));
        IToken(token).receiveWithAuthorization(
            payer, address(this), amount, validAfter, validBefore, keccak256(abi.encode(channelId, salt)), signature
        );
        IToken(token).transfer(SETTLEMENT, amount);
    }
}

/// Has Permit2 move a payer's money to the settlement contract. The witness names the channel: the money can go into no other. An approval
/// by EIP-2612 that is with it comes first; one that fails does no harm where the allowance is there.
contract TestBatchPermitCollector {
    address private constant SETTLEMENT = 0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003;
    address private constant PERMIT2 = 0x000000000022D473030F116dDEE9F6B43aC78BA3;
    string private constant WITNESS_TYPE =
        "DepositWitness witness)DepositWitness(bytes32 channelId)TokenPermissions(address token,uint256 amount)";

    error Permit2612AmountMismatch();

    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external {
        require(msg.sender == SETTLEMENT, "not the settlement contract");
        (uint256 nonce, uint256 deadline, bytes memory signature, bytes memory approval) =
            abi.decode(data, (uint256, uint256, bytes, bytes));
        if (approval.length > 0) approve(payer, token, amount, approval);
        IPermit2(PERMIT2).permitWitnessTransferFrom(
            IPermit2.PermitTransferFrom(IPermit2.TokenPermissions(token, amount), nonce, deadline),
            IPermit2.SignatureTransferDetails(SETTLEMENT, amount), payer,
            keccak256(abi.encode(keccak256("DepositWitness(bytes32 channelId)"), channelId)), WITNESS_TYPE, signature
        );
    }

    function approve(address payer, address token, uint256 amount, bytes memory approval) private {
        (uint256 value, uint256 until, uint8 v, bytes32 r, bytes32 s) = abi.decode(approval, (uint256, uint256, uint8, bytes32, bytes32));
        if (value != amount) revert Permit2612AmountMismatch();
        try IToken(token).permit(payer, PERMIT2, value, until, v, r, s) {} catch {}
    }
}

contract TestBatchMulticall {
    struct Call { address target; bytes callData; }
    struct Result { bool success; bytes returnData; }

    function tryAggregate(bool requireSuccess, Call[] calldata calls) external payable returns (Result[] memory results) {
        results = new Result[](calls.length);
        for (uint256 i; i < calls.length; i++) {
            (results[i].success, results[i].returnData) = calls[i].target.call(calls[i].callData);
            require(results[i].success || !requireSuccess, "Multicall3: call failed");
        }
    }
}
