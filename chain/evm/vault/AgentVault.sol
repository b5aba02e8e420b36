// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

/// What the vault needs of its token: ERC-20, and the EIP-712 domain in which EIP-3009 authorizations are signed.
interface IToken {
    function balanceOf(address account) external view returns (uint256);
    function transfer(address to, uint256 value) external returns (bool);
    function transferFrom(address from, address to, uint256 value) external returns (bool);
    function DOMAIN_SEPARATOR() external view returns (bytes32);
}

/// @title AgentVault: the owner's dollars, from which an agent's key may pay within limits that the chain keeps.
///
/// @notice The owner deploys it, puts money in and can take it out at any time. The agent has no account here and sends nothing: it
/// signs EIP-3009 authorizations whose payer is this contract, anybody may bring them to the token, and the token asks
/// isValidSignature (ERC-1271) before it moves the money.
///
/// The limits: at most `perPayment` in one payment; none that could still be cashed more than `maxWindow` seconds from now; and over
/// all payments never more than leaves a floor,
///
///     balance - payment >= floor,    floor = base - perPeriod * (1 + periods that have passed since start),    never below zero.
///
/// `base` is the balance when the allowance was given, and follows what the owner puts in and takes out. As every payment lowers the
/// balance, what the agent spent need not be written down, and a view can keep a limit over all payments together.
///
/// @notice What the owner should know:
/// - What is not spent in a period can be spent later. allow() counts anew.
/// - Money that comes in otherwise than by deposit() raises the balance and not the base: the agent may spend it at once.
/// - A deposit does not raise the allowance; but where the vault held less than is allowed, the agent can spend more after it.
/// - revoke() and allow() hold for what the agent has already signed, too: it is judged by the rule of the block in which it is cashed.
///   So who revokes a key and later allows the same key again also allows what it has signed and nobody has cashed: allow a new key.
/// - The first period begins with allow(), and its whole allowance can be spent at once.
/// - Nobody can change this code, the owner or the token. Who loses the owner's key loses the money above the agent's allowance.
/// - Whom the agent pays is not limited. The issuer of the token can freeze the vault and the owner, as any account.
/// - Other tokens, and the chain's own coin, cannot be taken out again: send none.
/// - It has not been audited.
///
/// @dev Only the owner's calls write. The token must be one that asks contracts for their signatures, as FiatToken does from 2.2 on.
contract AgentVault {
    /// The signature of a payment: abi.encode(to, value, validAfter, validBefore, nonce, the agent's 65 bytes), word by word. Read as
    /// words it can hold anything without an error, which abi.decode with `bytes` would end in.
    struct Cheque {
        uint256 to;
        uint256 value;
        uint256 validAfter;
        uint256 validBefore;
        bytes32 nonce;
        uint256 offset; // of the bytes, which stand behind the six words before them
        uint256 length;
        bytes32 r;
        bytes32 s;
        uint256 v; // one byte, and 31 zeros
    }

    uint256 private constant CHEQUE_LENGTH = 10 * 32;
    uint256 private constant BYTES_OFFSET = 6 * 32;
    uint256 private constant SIGNATURE_LENGTH = 65;

    /// Half of secp256k1's order: above it s belongs to the twin that anybody can make of a signature (EIP-2).
    uint256 private constant HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0;

    bytes32 private constant TRANSFER_WITH_AUTHORIZATION_TYPEHASH = keccak256(
        "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );

    /// ERC-1271's two answers.
    bytes4 private constant VALID = 0x1626ba7e;
    bytes4 private constant INVALID = 0xffffffff;

    /// Who may set the allowance and take the money.
    address public immutable owner;
    /// The only token that can be paid with and taken out.
    IToken public immutable token;

    /// Whose signature pays; zero when nobody's does.
    address public agent;
    /// When the present allowance began, in Unix seconds. Beside the agent, in one slot, because every payment reads both.
    uint64 public start;
    /// The balance that the floor is counted from.
    uint256 public base;
    /// What the floor falls by at start, and again with each period.
    uint256 public perPeriod;
    /// The length of a period in seconds.
    uint256 public period;
    /// The most that one payment may be.
    uint256 public perPayment;
    /// How many seconds from now a payment may at most be valid.
    uint256 public maxWindow;

    event Allowed(address indexed agent, uint256 perPeriod, uint256 period, uint256 perPayment, uint256 maxWindow, uint256 base);
    event Revoked(address indexed agent);
    event Deposited(uint256 value);
    event Withdrawn(uint256 value);

    modifier onlyOwner() {
        require(msg.sender == owner, "AgentVault: caller is not the owner");
        _;
    }

    /// @notice The allowance begins with the contract. Money may be at its address before that, and then belongs to the base.
    constructor(
        address owner_,
        address token_,
        address agent_,
        uint256 perPeriod_,
        uint256 period_,
        uint256 perPayment_,
        uint256 maxWindow_
    ) {
        require(owner_ != address(0), "AgentVault: owner is the zero address");
        owner = owner_;
        token = IToken(token_);
        token.DOMAIN_SEPARATOR(); // ends here where that is no token with a domain
        setAllowance(agent_, perPeriod_, period_, perPayment_, maxWindow_);
    }

    // For the owner

    /// @notice Lets `agent_` spend, and nobody else, under limits that are counted from now and from the present balance. What was
    /// allowed before ends, and what was not spent of it.
    function allow(address agent_, uint256 perPeriod_, uint256 period_, uint256 perPayment_, uint256 maxWindow_) external onlyOwner {
        setAllowance(agent_, perPeriod_, period_, perPayment_, maxWindow_);
    }

    /// @notice Ends the allowance: nothing that the agent has signed or will sign is valid, until allow() names that agent again.
    function revoke() external onlyOwner {
        emit Revoked(agent);
        agent = address(0);
    }

    /// @notice Moves `value` from the owner, who has approved it, into the vault. It does not raise the allowance.
    function deposit(uint256 value) external onlyOwner {
        base += value; // first, so that the money is never here without it
        require(token.transferFrom(msg.sender, address(this), value), "AgentVault: transferFrom failed");
        emit Deposited(value);
    }

    /// @notice Moves `value` from the vault to the owner. It does not lower the allowance.
    function withdraw(uint256 value) external onlyOwner {
        require(token.transfer(msg.sender, value), "AgentVault: transfer failed");
        base = base > value ? base - value : 0; // last, for the same reason
        emit Withdrawn(value);
    }

    // For everybody

    /// @notice Whether the token may move what `signature` says: ERC-1271's magic value, or 0xffffffff. It gives that answer, and no
    /// error, to whatever bytes.
    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        if (signature.length != CHEQUE_LENGTH) return INVALID;
        Cheque memory cheque = abi.decode(signature, (Cheque));
        bool valid = isCanonical(cheque) && isWithinLimits(cheque) && digestOf(cheque) == digest && isByAgent(cheque, digest);
        return valid ? VALID : INVALID;
    }

    /// @notice The balance that the agent must leave; the largest number when nobody may spend.
    function floor() public view returns (uint256) {
        if (agent == address(0)) return type(uint256).max;
        uint256 periods = elapsedPeriods() + 1;
        // base / periods is what perPeriod can be without the product being above base, let alone too large for a word
        return perPeriod > base / periods ? 0 : base - perPeriod * periods;
    }

    /// @notice What the agent can spend now, in all its payments together.
    function available() external view returns (uint256) {
        return above(floor(), token.balanceOf(address(this)));
    }

    /// @notice Everything that a wallet wants to know, at one moment. `nextPeriod` is when the floor falls next, if it is not zero yet,
    /// in Unix seconds; it is zero when nobody may spend, and the largest number when a word cannot hold it.
    function state()
        external
        view
        returns (
            address owner_,
            address token_,
            address agent_,
            uint256 balance_,
            uint256 available_,
            uint256 perPayment_,
            uint256 maxWindow_,
            uint256 perPeriod_,
            uint256 period_,
            uint256 nextPeriod_
        )
    {
        uint256 balance = token.balanceOf(address(this));
        return (
            owner, address(token), agent, balance, above(floor(), balance), perPayment, maxWindow, perPeriod, period, nextPeriod()
        );
    }

    // Inside

    function setAllowance(address agent_, uint256 perPeriod_, uint256 period_, uint256 perPayment_, uint256 maxWindow_) private {
        require(agent_ != address(0), "AgentVault: agent is the zero address");
        require(period_ != 0, "AgentVault: period is zero");
        agent = agent_;
        start = uint64(block.timestamp);
        base = token.balanceOf(address(this));
        perPeriod = perPeriod_;
        period = period_;
        perPayment = perPayment_;
        maxWindow = maxWindow_;
        emit Allowed(agent_, perPeriod_, period_, perPayment_, maxWindow_, base);
    }

    function elapsedPeriods() private view returns (uint256) {
        return (block.timestamp - start) / period;
    }

    function nextPeriod() private view returns (uint256) {
        if (agent == address(0)) return 0;
        uint256 present = start + elapsedPeriods() * period;
        return period > type(uint256).max - present ? type(uint256).max : present + period;
    }

    function above(uint256 least, uint256 balance) private pure returns (uint256) {
        return balance > least ? balance - least : 0;
    }

    /// Whether it is written in the one way in which abi.encode writes it.
    function isCanonical(Cheque memory cheque) private pure returns (bool) {
        return cheque.offset == BYTES_OFFSET && cheque.length == SIGNATURE_LENGTH && cheque.to <= type(uint160).max
            && cheque.v << 8 == 0;
    }

    function isWithinLimits(Cheque memory cheque) private view returns (bool) {
        if (cheque.value > perPayment) return false;
        if (above(block.timestamp, cheque.validBefore) > maxWindow) return false;
        uint256 balance = token.balanceOf(address(this));
        return cheque.value <= balance && balance - cheque.value >= floor();
    }

    /// The EIP-712 digest of the authorization as this vault's token hashes it, with this vault as the payer.
    function digestOf(Cheque memory cheque) private view returns (bytes32) {
        bytes32 message = keccak256(
            abi.encode(
                TRANSFER_WITH_AUTHORIZATION_TYPEHASH,
                address(this),
                cheque.to,
                cheque.value,
                cheque.validAfter,
                cheque.validBefore,
                cheque.nonce
            )
        );
        return keccak256(abi.encodePacked("\x19\x01", token.DOMAIN_SEPARATOR(), message));
    }

    /// Whether the agent signed the digest. ecrecover answers zero to what is no signature, so nobody's must not be zero's.
    function isByAgent(Cheque memory cheque, bytes32 digest) private view returns (bool) {
        uint8 v = uint8(cheque.v >> 248);
        if (uint256(cheque.s) > HALF_ORDER || (v != 27 && v != 28)) return false;
        address signer = ecrecover(digest, v, cheque.r, cheque.s);
        return signer != address(0) && signer == agent;
    }
}
