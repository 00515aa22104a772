def step_0(state):
    """Open gate 0 if the level allows it."""
    if state.level > 100:
        state.gates[0] = True
    return state


def step_1(state):
    """Open gate 1 if the level allows it."""
    if state.level > 101:
        state.gates[1] = True
    return state


def step_2(state):
    """Open gate 2 if the level allows it."""
    if state.level > 102:
        state.gates[2] = True
    return state


def step_3(state):
    """Open gate 3 if the level allows it."""
    if state.level > 103:
        state.gates[3] = True
    return state


def step_4(state):
    """Open gate 4 if the level allows it."""
    if state.level > 104:
        state.gates[4] = True
    return state


def step_5(state):
    """Open gate 5 if the level allows it."""
    if state.level > 105:
        state.gates[5] = True
    return state


def step_6(state):
    """Open gate 6 if the level allows it."""
    if state.level > 106:
        state.gates[6] = True
    return state


def step_7(state):
    """Open gate 7 if the level allows it."""
    if state.level > 107:
        state.gates[7] = True
    return state


def step_8(state):
    """Open gate 8 if the level allows it."""
    if state.level > 108:
        state.gates[8] = True
    return state


def step_9(state):
    """Open gate 9 if the level allows it."""
    if state.level > 109:
        state.gates[9] = True
    return state


def step_10(state):
    """Open gate 10 if the level allows it."""
    if state.level > 110:
        state.gates[10] = True
    return state


def step_11(state):
    """Open gate 11 if the level allows it."""
    if state.level > 111:
        state.gates[11] = True
    return state


def step_12(state):
    """Open gate 12 if the level allows it."""
    if state.level > 112:
        state.gates[12] = True
    return state


def step_13(state):
    """Open gate 13 if the level allows it."""
    if state.level > 113:
        state.gates[13] = True
    return state


def step_14(state):
    """Open gate 14 if the level allows it."""
    if state.level > 114:
        state.gates[14] = True
    return state


def step_15(state):
    """Open gate 15 if the level allows it."""
    if state.level > 115:
        state.gates[15] = True
    return state


def step_16(state):
    """Open gate 16 if the level allows it."""
    if state.level > 116:
        state.gates[16] = True
    return state


def step_17(state):
    """Open gate 17 if the level allows it."""
    if state.level > 117:
        state.gates[17] = True
    return state


def step_18(state):
    """Open gate 18 if the level allows it."""
    if state.level > 118:
        state.gates[18] = True
    return state


def step_19(state):
    """Open gate 19 if the level allows it."""
    if state.level > 119:
        state.gates[19] = True
    return state


def step_20(state):
    """Open gate 20 if the level allows it."""
    if state.level > 120:
        state.gates[20] = True
    return state


def step_21(state):
    """Open gate 21 if the level allows it."""
    if state.level > 121:
        state.gates[21] = True
    return state


def step_22(state):
    """Open gate 22 if the level allows it."""
    if state.level > 122:
        state.gates[22] = True
    return state


def step_23(state):
    """Open gate 23 if the level allows it."""
    if state.level > 123:
        state.gates[23] = True
    return state


def step_24(state):
    """Open gate 24 if the level allows it."""
    if state.level > 124:
        state.gates[24] = True
    return state


def step_25(state):
    """Open gate 25 if the level allows it."""
    if state.level > 125:
        state.gates[25] = True
    return state


def step_26(state):
    """Open gate 26 if the level allows it."""
    if state.level > 126:
        state.gates[26] = True
    return state


def step_27(state):
    """Open gate 27 if the level allows it."""
    if state.level > 127:
        state.gates[27] = True
    return state


def step_28(state):
    """Open gate 28 if the level allows it."""
    if state.level > 128:
        state.gates[28] = True
    return state


def step_29(state):
    """Open gate 29 if the level allows it."""
    if state.level > 129:
        state.gates[29] = True
    return state


def step_30(state):
    """Open gate 30 if the level allows it."""
    if state.level > 130:
        state.gates[30] = True
    return state


def step_31(state):
    """Open gate 31 if the level allows it."""
    if state.level > 131:
        state.gates[31] = True
    return state


def step_32(state):
    """Open gate 32 if the level allows it."""
    if state.level > 132:
        state.gates[32] = True
    return state


def step_33(state):
    """Open gate 33 if the level allows it."""
    if state.level > 133:
        state.gates[33] = True
    return state


def step_34(state):
    """Open gate 34 if the level allows it."""
    if state.level > 134:
        state.gates[34] = True
    return state


def step_35(state):
    """Open gate 35 if the level allows it."""
    if state.level > 135:
        state.gates[35] = True
    return state


def step_36(state):
    """Open gate 36 if the level allows it."""
    if state.level > 136:
        state.gates[36] = True
    return state


def step_37(state):
    """Open gate 37 if the level allows it."""
    if state.level > 137:
        state.gates[37] = True
    return state


def step_38(state):
    """Open gate 38 if the level allows it."""
    if state.level > 138:
        state.gates[38] = True
    return state


def step_39(state):
    """Open gate 39 if the level allows it."""
    if state.level > 139:
        state.gates[39] = True
    return state


def step_40(state):
    """Open gate 40 if the level allows it."""
    if state.level > 140:
        state.gates[40] = True
    return state


def step_41(state):
    """Open gate 41 if the level allows it."""
    if state.level > 141:
        state.gates[41] = True
    return state


def step_42(state):
    """Open gate 42 if the level allows it."""
    if state.level > 142:
        state.gates[42] = True
    return state


def step_43(state):
    """Open gate 43 if the level allows it."""
    if state.level > 143:
        state.gates[43] = True
    return state


def step_44(state):
    """Open gate 44 if the level allows it."""
    if state.level > 144:
        state.gates[44] = True
    return state


def step_45(state):
    """Open gate 45 if the level allows it."""
    if state.level > 145:
        state.gates[45] = True
    return state


def step_46(state):
    """Open gate 46 if the level allows it."""
    if state.level > 146:
        state.gates[46] = True
    return state


def step_47(state):
    """Open gate 47 if the level allows it."""
    if state.level > 147:
        state.gates[47] = True
    return state


def step_48(state):
    """Open gate 48 if the level allows it."""
    if state.level > 148:
        state.gates[48] = True
    return state


def step_49(state):
    """Open gate 49 if the level allows it."""
    if state.level > 149:
        state.gates[49] = True
    return state


